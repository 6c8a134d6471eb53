"""`skep job`, `schedule`, `generator`, `app`, and what they share."""
