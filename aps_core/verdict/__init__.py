"""Verdict on a restoration: does it agree with the measurement?"""
