"""Pages of the work itself: jobs in detail, schedules, applications, and runs compared."""
