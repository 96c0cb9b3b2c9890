//! Guards: rules that the simulation takes away one by one, to check that its oracles notice the damage. Without the
//! feature `simulation` all guards stand, and the check compiles to nothing.

/// The rules that can be taken away. `Prefetch` is a shortcut and no rule: a benchmark takes it away to measure its
/// gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named after what it guards")]
pub enum Guard {
    WriteAhead,
    Precondition,
    OwnWritesEnqueueNothing,
    OwnByBothVersions,
    LookBeforeTheFirstAct,
    RebaseOnlyWhatNobodyChanged,
    NotFoundNeedsASyncedWatch,
    Fencing,
    ChangesBeginInTime,
    SentUnlessSaid,
    LocksExclude,
    ActsHavePreconditions,
    ADenialEndsThePass,
    OnePassAtATime,
    EarlierDeadlinesStand,
    TenantsHaveTurnsOfTheirOwn,
    ChangesEnqueueDependents,
    OnlyWhoUsedItIsEnqueued,
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
    UnseenChangesEnqueue,
    LocksLastUntilPublished,
    CapacitiesAreBounded,
    LargePassesAreFew,
    StaleKeysReadFirst,
    OnlyNewsEndsARetry,
    WaitsLastTheirTime,
    FinalizersComeFirst,
    Prefetch,
}

/// The guards that stand: all, except for one that a test took away. `G` is the type of the guards, so that other
/// crates can have guards of their own.
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
    /// All guards except this one.
    #[cfg(feature = "simulation")]
    pub fn without(guard: G) -> Self {
        Guards { gone: Some(guard) }
    }

    /// Whether this guard stands.
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
