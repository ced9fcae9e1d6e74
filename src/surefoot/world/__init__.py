"""The learned model of a task: ensemble, fitting, imagination, planning and diagnostics."""
