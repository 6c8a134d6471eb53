"""Jobs in SQL: definitions, schedules, generators."""
