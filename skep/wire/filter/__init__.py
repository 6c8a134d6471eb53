"""The filter language of the API, the command line and the portal: parser, fields, completion."""
