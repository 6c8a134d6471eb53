"""`skep job`, `schedule`, `generator`, `app`, and the code they share."""
