"""Rules on the model that is served: a smaller one, a mixture of experts, a pruned one."""
