"""Folds, refits and tuned values of the accuracy benchmark."""
