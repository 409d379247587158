"""Rules about the served model: a smaller one, a mixture of experts (MoE), a pruned one."""
