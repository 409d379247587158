"""Run the sampler child: `python -m pertoken.agent.sampler [PROBE,...]`."""

from pertoken.agent.sampler.child import main

main()
