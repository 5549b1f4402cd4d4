//! What operators do to facts and targets: hide and show, statuses, the audit log.
