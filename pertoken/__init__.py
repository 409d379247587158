"""pertoken: what your own LLM tokens cost, and what would make them cheaper.

Rule authors import from `pertoken.rule`; nothing is loaded here, so that `import pertoken` stays light.
"""

__version__ = "0.2.0"
