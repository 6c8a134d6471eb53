"""What runs inside the box, beside user code: it imports nothing else of Skep.

Whatever happens in there, the agent reads one checked line for each request.
"""
