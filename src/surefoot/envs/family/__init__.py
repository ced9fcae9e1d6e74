"""Safety-Gymnasium's navigation tasks with solid objects: Goal, Button, Push, Circle and Run."""
