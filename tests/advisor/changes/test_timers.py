from pertoken.advisor.changes.commands import Timer, timer_commands, timers
from pertoken.state.service import Schedule, asleep, off

NIGHTS = [hour for hour in range(168) if hour % 24 < 6 or hour % 24 >= 19]
OFFICE = [hour for hour in range(168) if not (7 <= hour % 24 < 19 and hour < 120)]


def test_a_schedule_is_a_timer_for_each_moment_at_which_it_changes() -> None:
    assert timers(off(NIGHTS)) == (Timer(tuple(range(7)), 6, "on"), Timer(tuple(range(7)), 19, "off"))
    assert [timer.calendar for timer in timers(off(NIGHTS))] == ["*-*-* 06:00:00 UTC", "*-*-* 19:00:00 UTC"]
    on, stop = timers(off(OFFICE))
    assert (on.calendar, on.cron) == ("Mon..Fri *-*-* 07:00:00 UTC", "0 7 * * 1,2,3,4,5")
    assert (stop.calendar, stop.to) == ("Mon..Fri *-*-* 19:00:00 UTC", "off")


def test_a_schedule_that_never_changes_has_no_timer() -> None:
    assert timers(Schedule()) == timers(off(range(168))) == ()


def test_sundays_are_day_0_of_cron() -> None:
    (last, first) = timers(off(range(144, 168)))
    assert {timer.cron for timer in (first, last)} == {"0 0 * * 0", "0 0 * * 1"}


def test_each_timer_has_what_it_does() -> None:
    stop, start = timer_commands("chat", off(range(0, 6)), 3)
    assert "kubectl scale deployment/chat --replicas=0" in stop and "give unused hosts back" in stop
    assert "--replicas=3" in start and "CronJob: 0 6 * * 1" in start
    sleep, wake = timer_commands("chat", asleep(range(0, 6)), 3)
    assert "POST /sleep?level=1" in sleep and "POST /wake_up" in wake
    fewer, more = timer_commands("chat", Schedule(replicas=((0, 1), (1, 1))), 3)
    assert "--replicas=1" in fewer and "back" in fewer
    assert "--replicas=3" in more and "start their hosts first" in more
