"""The API, a file per resource. Each exports its rows; the table is their sum."""
