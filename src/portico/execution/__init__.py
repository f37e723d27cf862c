"""A call becomes exactly one invocation: resolved, admitted, checked, run and recorded."""
