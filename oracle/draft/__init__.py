"""Draft semantics: what a draft model is fed, and the states handed from step to step."""
