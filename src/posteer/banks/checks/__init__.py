"""Does a model behave as a Bayes filter?"""
