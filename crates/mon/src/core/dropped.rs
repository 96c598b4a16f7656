//! Why a monitor drops what it is sent: `perf dump` shows how often.

spirula_invariant::reasons! {
    /// Why something is dropped.
    pub(crate) enum DropReason {
        /// Nobody is there any more who sent it, or whom it is for.
        SessionGone => "session_gone", "Messages dropped as their session had ended";
        /// Only the leader can do it; whoever sent it sends it again.
        NotLeader => "not_leader", "Messages for the leader that came when this monitor knew none, or led no more";
        /// What it is about is not the sender's to tell.
        ReportForeign => "report_foreign", "Reports dropped of what is no OSD, or is not the one to tell";
        /// It is about an earlier life or map.
        ReportStale => "report_stale", "Reports of OSDs dropped as the map has changed since";
        /// It is too large, or can't be read.
        ReportUnsound => "report_unsound", "Reports of OSDs dropped that are too large or can't be read";
        /// The question has another answer, or is over.
        AnswerLate => "answer_late", "Answers of monitors and of the manager's modules that nobody waits for any more";
        /// It does not fit the map that it was made for.
        ChangeUnsound => "change_unsound", "Changes of the OSDMap that did not fit it: defects";
    }
}
