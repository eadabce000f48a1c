"""Readers of free text: one interface, a rule-based one without a key, and one through a language model."""

from activities.classifiers.base import NO_CONTEXT, Classifier, Failure, NotAllowed, ReadingContext, make_classifier

__all__ = ["NO_CONTEXT", "Classifier", "Failure", "NotAllowed", "ReadingContext", "make_classifier"]
