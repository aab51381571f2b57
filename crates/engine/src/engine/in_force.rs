use super::deciding::Taking;
use super::rules::Rules;
use super::{Engine, Step, Verdict};
use arc_swap::Guard;
use std::fmt;
use std::sync::Arc;
use tollgate_limit::Time;
use tollgate_rules::{CompiledNamespace, Request};

/// The rules in force at one moment, and an engine to decide by these and no others.
///
/// Which attributes a request has to bring depends on the rules. Whoever finds them out, as the `tower` layer does,
/// reads that from here and asks here, so that rules replaced in between do not see a request made for others.
///
/// ```
/// use tollgate::{Engine, Request, RuleSet, Source, Time};
///
/// let rules = "
/// namespace: api
/// rules: [{ name: tenants, key: [header.x-tenant], limits: [1 per second] }]
/// ";
/// let engine = Engine::new(RuleSet::parse(&[Source::new("rules.yaml", rules)])?, Time::ZERO);
/// let rules = engine.in_force();
/// let mentioned: Vec<_> = rules.namespace("api").into_iter().flat_map(|api| api.mentioned()).collect();
/// assert_eq!(mentioned, ["header.x-tenant"]);
/// assert!(rules.check(&Request::new("api", &[("header.x-tenant", "acme".into())]), Time::ZERO).is_allowed());
/// # Ok::<(), tollgate::Mistakes>(())
/// ```
pub struct InForce<'e> {
    pub(super) engine: &'e Engine,
    pub(super) rules: Guard<Arc<Rules>>,
}

impl InForce<'_> {
    /// A namespace's rules.
    pub fn namespace(&self, name: &str) -> Option<&CompiledNamespace> {
        self.rules.compiled.namespace(name)
    }

    /// All of them.
    pub fn namespaces(&self) -> &[CompiledNamespace] {
        self.rules.compiled.namespaces()
    }

    /// Decides as [`Engine::check`] does.
    pub fn check(&self, request: &Request<'_>, now: Time) -> Verdict {
        let mut verdict = Verdict::open(Guard::from_inner(Arc::clone(&self.rules)));
        self.engine.decide(&mut verdict, std::slice::from_ref(request), Taking::Pay, now);
        verdict
    }

    /// Decides as far as possible here, as [`Engine::begin`] does.
    pub fn begin(&self, request: &Request<'_>, now: Time) -> Step {
        let rules = Guard::from_inner(Arc::clone(&self.rules));
        self.engine.begin_by(rules, std::slice::from_ref(request), Taking::Pay, now)
    }
}

impl fmt::Debug for InForce<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InForce").field("version", &self.rules.version).finish_non_exhaustive()
    }
}
