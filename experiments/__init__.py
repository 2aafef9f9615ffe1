"""Where simulator and models meet: configs, runs, results, theory, figures, claims, and the command
line.
"""
