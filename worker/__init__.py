"""The process that hosts workflows and activities, in roles on separate task queues (design, "Least privilege by process")."""
