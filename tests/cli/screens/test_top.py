from tests.cli.builders import run


def test_top_without_a_terminal_prints_the_facts(recorded: str) -> None:
    output = run("top", "--db", recorded).output
    assert "Llama-3.3-70B-Instruct" in output
    assert "pertoken prices set" in output
