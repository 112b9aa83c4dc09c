"""What goes over the wire, and who may: bodies, guard, refusals, responses, connections, the log, figures."""
