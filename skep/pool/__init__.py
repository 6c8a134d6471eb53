"""The message pool: messages of pipelines that failed or must wait. Used by centers."""
