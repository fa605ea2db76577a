"""Traces of single messages through the broker, for a receiver of OTLP over HTTP; see docs/tracing.md.

turns of the TracedDriver ─► MessageTraces, which finds the few messages that are traced ─► SpanExport, a thread of its own
"""
