"""The message engine: parse, filter, trace, extras, operations and outputs over a batch."""
