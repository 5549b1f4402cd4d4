//! Turns change events into counts; sweeps the journal for what events missed.
