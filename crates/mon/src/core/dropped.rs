//! The reasons why a monitor drops messages; `perf dump` shows how often.

spirula_invariant::reasons! {
    /// Why a message, answer or change is dropped.
    pub(crate) enum DropReason {
        /// The session of the sender or receiver has ended.
        SessionGone => "session_gone", "Messages dropped as their session had ended";
        /// Only the leader can handle the message; the sender sends it again.
        NotLeader => "not_leader", "Messages for the leader that came when this monitor knew none, or led no more";
        /// The sender may not report on the message's subject.
        ReportForeign => "report_foreign", "Reports dropped of what is no OSD, or is not the one to tell";
        /// The report is about an earlier life of the OSD, or an earlier map.
        ReportStale => "report_stale", "Reports of OSDs dropped as the map has changed since";
        /// The report is too large, or can't be read.
        ReportUnsound => "report_unsound", "Reports of OSDs dropped that are too large or can't be read";
        /// The question has been answered already, or is over.
        AnswerLate => "answer_late", "Answers of monitors and of the manager's modules that nobody waits for any more";
        /// The change does not fit the map that it was made for.
        ChangeUnsound => "change_unsound", "Changes of the OSDMap that did not fit it: defects";
    }
}
