//! The layers of the schemas: where they lie, what is made of them, and what their readers are told.

/// One directory of schemas.
#[derive(Debug)]
pub(super) struct Layer {
    /// Its name below `spec/schemas`.
    pub(super) dir: &'static str,
    /// The files that are made, below `bindings/`.
    pub(super) python: &'static str,
    pub(super) typescript: &'static str,
    /// What they say of themselves first.
    pub(super) about: &'static str,
    /// Whether it is what a reader has to bear: lists of words may be open in it, and objects are.
    pub(super) is_open: bool,
    /// Lists of words that stand at several places, or did so when they got their name, which users have: where one of
    /// them stands, and their name.
    pub(super) shared: &'static [(&'static str, &'static str, &'static str)],
}

/// What a reader has to bear, and what this library writes.
pub(super) static ALL: [Layer; 2] = [
    Layer {
        dir: "v1",
        python: "python/runstore_types.py",
        typescript: "typescript/runstore.d.ts",
        about: "Types of the documents of a run store, as a reader has to bear them, and of the answers of `runstore`.",
        is_open: true,
        shared: &[
            ("status", "/properties/state/anyOf/0/enum", "RunState"),
            ("status", "/properties/mode/anyOf/0/enum", "RunMode"),
            ("process-terminal", "/properties/state/enum", "ProofState"),
            ("process-terminal", "/$defs/writerInstance/properties/kind/enum", "WriterKind"),
            (
                "process-terminal",
                "/$defs/writerInstance/properties/processTree/oneOf/1/properties/reason/enum",
                "ProcessTreeReason",
            ),
            ("inspect", "/$defs/run/properties/verdict/enum", "Verdict"),
            ("inspect", "/$defs/run/properties/liveness/enum", "Liveness"),
            ("inspect", "/$defs/finding/properties/severity/enum", "Severity"),
            ("plan", "/$defs/action/properties/action/enum", "RepairAction"),
        ],
    },
    Layer {
        dir: "writer-v1",
        python: "python/runstore_written_types.py",
        typescript: "typescript/runstore-written.d.ts",
        about: "Types of the documents of a run store, as this library writes them. A reader has to bear more.",
        is_open: false,
        shared: &[
            ("status", "/properties/mode/enum", "RunMode"),
            ("run-result", "/properties/mode/enum", "RunnerMode"),
            ("run-result", "/properties/state/enum", "RunOutcome"),
            ("lease-owner", "/properties/writerState/enum", "LeaseWriterState"),
            ("process-terminal", "/oneOf/0/properties/state/enum", "EarlyProofState"),
            ("process-terminal", "/oneOf/1/properties/reason/enum", "ProofReason"),
            ("process-terminal", "/oneOf/2/properties/resumeDisposition/enum", "ResumeDisposition"),
            ("process-terminal", "/$defs/writer/properties/kind/enum", "WriterKind"),
        ],
    },
];
