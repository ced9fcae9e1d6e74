"""Robots that drive or walk between objects, on MuJoCo."""
