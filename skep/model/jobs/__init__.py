"""Jobs and what belongs to them: schedules, generators, applications, notices. Pure data."""
