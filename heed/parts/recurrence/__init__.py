"""Scans, decays, retention and token shift: what recurrent mixers are made of."""
