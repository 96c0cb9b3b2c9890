//! Guards that the simulation takes away one by one, to see that its oracles notice. Without the feature `simulation` all of
//! them stand, and no code asks.

/// What a guard guards; `Prefetch` is a shortcut, which a benchmark takes away to see what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named after what it guards")]
pub enum Guard {
    WriteAhead,
    Precondition,
    OwnWritesWakeNothing,
    LookBeforeTheFirstAct,
    RebaseOnlyWhatNobodyChanged,
    NotFoundNeedsASyncedWatch,
    Fencing,
    LocksExclude,
    ActsHavePreconditions,
    ADenialEndsThePass,
    OnePassAtATime,
    EarlierDeadlinesStand,
    TenantsHaveRoomOfTheirOwn,
    ChangesWakeDependents,
    OnlyWhoUsedItWakes,
    OwnWritesEnterTheCache,
    NothingInDoubtIsDoneAgain,
    DoubtKeepsTheFinalizer,
    EntriesOfOthersAreAskedFor,
    AbsentTakesTime,
    ActsAsGranted,
    OnlyWhatIsGranted,
    FaultsBackOff,
    FaultsDelayNoOther,
    PassesKeepTheirBinding,
    RecordingsAreWhole,
    RetryPoliciesDecide,
    SwappedRetryPoliciesAreAsked,
    UnseenChangesWake,
    LocksLastUntilPublished,
    RoomsAreBounded,
    StaleKeysReadFirst,
    Prefetch,
}

/// The guards that stand: all of them, but for one that a test took away. Whoever has guards of another sort names them `G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards<G = Guard> {
    #[cfg(feature = "simulation")]
    gone: Option<G>,
    #[cfg(not(feature = "simulation"))]
    of: std::marker::PhantomData<G>,
}

impl<G> Default for Guards<G> {
    fn default() -> Self {
        Guards {
            #[cfg(feature = "simulation")]
            gone: None,
            #[cfg(not(feature = "simulation"))]
            of: std::marker::PhantomData,
        }
    }
}

impl<G: PartialEq> Guards<G> {
    /// All but this one.
    #[cfg(feature = "simulation")]
    pub fn without(guard: G) -> Self {
        Guards { gone: Some(guard) }
    }

    /// Whether a guard stands.
    #[cfg(feature = "simulation")]
    pub fn stand(self, guard: G) -> bool {
        self.gone != Some(guard)
    }

    /// Whether a guard stands.
    #[cfg(not(feature = "simulation"))]
    pub fn stand(self, _: G) -> bool {
        true
    }
}
