"""The filter language as data: syntax tree, field tables, checked filters and their evaluation."""
