"""What is done with a run: evaluate, plan, film, diagnose."""
