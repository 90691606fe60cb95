"""Several processes: joining a job, agreeing, stopping, and the lock."""
