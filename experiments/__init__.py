"""Configs, runs, results, theory, figures, questions and the command line: simulator and models
meet here.
"""
