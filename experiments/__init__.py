"""Where simulator and models meet: configs, runs, results, theory, figures, questions, and the
command line.
"""
