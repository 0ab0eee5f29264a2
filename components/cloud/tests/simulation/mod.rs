//! A simulation of the four controllers with a simulated cloud. Any call to the cloud may fail. Managers crash, hand
//! over to other managers and lose their memory; users change their objects. When the failures have stopped, the
//! cluster and the cloud must agree. Some invariants must hold all the time.

use crate::common::{self, Shared, beside, new_node, ready, service, settings};
use holdfast_cloud::lifecycle::Lifecycle;
use holdfast_cloud::node::CloudNodes;
use holdfast_cloud::route::Routes;
use holdfast_cloud::service::{FINALIZER, Services};
use holdfast_cloud::simulated::InstanceEvent;
use holdfast_value::{Value, json};
use holdfast_world::Trial;
use holdfast_world::cloud::{CloudCall, Fault, FaultReason};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const STEPS: usize = 60;
const NODES: [&str; 4] = ["a", "b", "c", "d"];
const SERVICES: [&str; 3] = ["x", "y", "z"];

/// Makes random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// The state of a run of the simulation, apart from the objects of the cluster.
struct Run {
    dice: Dice,
    cloud: Shared,
    trial: Trial,
    /// Whether calls to the cloud may fail.
    is_bad: Rc<Cell<bool>>,
    are_two: bool,
    /// The names of the instances that exist.
    alive: BTreeSet<&'static str>,
}

/// Runs the simulation with one seed. The error names the rule that was broken.
pub fn run(seed: u64) -> Result<(), String> {
    let mut run = Run::new(seed);
    for _ in 0..STEPS {
        run.step();
        run.look()?;
    }
    run.settle()
}

impl Run {
    fn new(seed: u64) -> Run {
        let instances: Vec<String> = NODES
            .iter()
            .map(|name| format!("{{name: {name}, zone: z, addresses: [{{type: InternalIP, address: 10.9.0.1}}]}}"))
            .collect();
        let text = format!("{{seed: {seed}, consistency: 3s, instances: [{}]}}", instances.join(", "));
        let (cloud, is_bad) = (common::cloud(&text), Rc::new(Cell::new(true)));
        let mut trial = beside(&cloud);
        let (asked, bad, dice) = (cloud.clone(), is_bad.clone(), RefCell::new(Dice(seed ^ 77)));
        let mut hidden: BTreeSet<String> = BTreeSet::new();
        trial.cloud = Some(Box::new(move |call, now| {
            let fault = Fault::unavailable("it is not well");
            let dice = dice.borrow_mut().below(10);
            if bad.get() && dice < 2 {
                return Err(fault);
            }
            let answer = asked.borrow_mut().answer(call, now);
            if bad.get() && dice < 4 {
                return Err(fault);
            }
            // Some clouds show new instances with a delay. So an answer about an existing instance is sometimes
            // replaced by the answer that it does not exist, and the next call finds it.
            if let (CloudCall::Instance { node, .. }, Ok(_)) = (call, &answer)
                && bad.get()
                && dice == 4
                && hidden.insert(node.name.clone())
            {
                return Err(Fault::new(FaultReason::NotFound, "instance not found"));
            }
            answer
        }));
        trial.is_level = false;
        let mut run = Run { dice: Dice(seed), cloud, trial, is_bad, are_two: false, alive: NODES.into() };
        run.manage();
        for (number, name) in NODES.iter().enumerate() {
            new_node(&mut run.trial, name);
            let range = format!("10.1.{number}.0/24");
            run.trial.patch("nodes", name, json!({"spec": {"podCIDR": range, "podCIDRs": [range]}}));
        }
        run
    }

    /// Adds a second manager without leader election, so that two managers work at once.
    fn add(&mut self) {
        let settings = settings();
        self.trial.add(Box::new(CloudNodes::new(&settings)));
        self.trial.add(Box::new(Lifecycle::new(&settings)));
        self.trial.add(Box::new(Services::new(&settings)));
        self.trial.add(Box::new(Routes::new(&settings)));
    }

    /// Replaces the managers by a new manager, which has no memory of earlier plans.
    fn manage(&mut self) {
        self.are_two = false;
        let settings = settings();
        self.trial.restart(CloudNodes::new(&settings));
        self.trial.restart(Lifecycle::new(&settings));
        self.trial.restart(Services::new(&settings));
        self.trial.restart(Routes::new(&settings));
    }

    fn step(&mut self) {
        match self.dice.below(12) {
            0 | 1 => {
                let name = SERVICES[self.dice.below(SERVICES.len())];
                match self.trial.names("services").iter().any(|known| known == name) {
                    true => self.trial.delete("services", name),
                    false => _ = self.trial.try_create(service(name)),
                }
            }
            2 => {
                let name = SERVICES[self.dice.below(SERVICES.len())];
                let types = ["LoadBalancer", "ClusterIP", "NodePort"];
                let kind = types[self.dice.below(types.len())];
                if self.trial.names("services").iter().any(|known| known == name) {
                    let ports = json!([{"port": 80, "protocol": "TCP"}]);
                    self.trial.patch("services", name, json!({"spec": {"type": kind, "ports": ports}}));
                }
            }
            3 => {
                let name = NODES[self.dice.below(NODES.len())];
                let state = ["True", "Unknown"][self.dice.below(2)];
                let is_there = self.trial.names("nodes").iter().any(|known| known == name);
                if is_there && (state == "Unknown" || self.alive.contains(name)) {
                    ready(&mut self.trial, name, state);
                }
            }
            4 if self.alive.len() > 2 => {
                let name = NODES[self.dice.below(NODES.len())];
                self.cloud.borrow_mut().change(name, InstanceEvent::Vanish);
                self.alive.remove(name);
                if self.trial.names("nodes").iter().any(|known| known == name) {
                    ready(&mut self.trial, name, "Unknown");
                }
            }
            5 => self.manage(),
            6 => self.trial.pass_millis(6_000),
            7 if !self.are_two => {
                self.are_two = true;
                self.add();
            }
            _ => {}
        }
        // The manager may crash after any step.
        for _ in 0..self.dice.below(12) {
            self.trial.step();
        }
        self.trial.pass_millis(500);
    }

    /// Checks the invariants that must hold at every moment.
    fn look(&mut self) -> Result<(), String> {
        let nodes = self.trial.names("nodes");
        if let Some(name) = self.alive.iter().find(|name| !nodes.iter().any(|node| node == *name)) {
            return Err(format!("node {name} was deleted though its instance lives"));
        }
        let services = self.services();
        for kept in self.cloud.borrow().balancers() {
            let service = services.get(&kept.wanted.service.uid);
            let has_finalizer = |service: &Value| service["metadata"]["finalizers"] == json!([FINALIZER]);
            if !service.is_some_and(has_finalizer) {
                return Err(format!("a balancer of {} is held by no finalizer", kept.wanted.service.name));
            }
        }
        let routes: Vec<String> = self.cloud.borrow().routes().map(|route| route.destination.clone()).collect();
        if routes.iter().collect::<BTreeSet<_>>().len() < routes.len() {
            return Err(format!("a route is there twice: {routes:?}"));
        }
        Ok(())
    }

    fn services(&self) -> BTreeMap<String, Value> {
        let uid = |service: &Value| service["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.trial.list("services").into_iter().map(|service| (uid(&service), service)).collect()
    }

    /// Ends the failures, lets time pass, and checks that the cluster and the cloud agree.
    fn settle(&mut self) -> Result<(), String> {
        self.is_bad.set(false);
        self.run_for(1_000);
        self.look()?;
        let services = self.services();
        let balancers: BTreeSet<String> =
            self.cloud.borrow().balancers().map(|kept| kept.wanted.service.uid.clone()).collect();
        for (uid, service) in &services {
            let (wants, has) = (service["spec"]["type"] == "LoadBalancer", balancers.contains(uid));
            if !service["metadata"]["deletionTimestamp"].is_null() {
                return Err("a Service that is deleted stays".into());
            }
            if wants != has {
                return Err(format!("a Service wants a balancer: {wants}, and has one: {has}"));
            }
            if wants == service["metadata"]["finalizers"].is_null() {
                return Err("a finalizer is not as the type".into());
            }
            if wants != service["status"]["loadBalancer"]["ingress"].is_array() {
                return Err(format!("a Service shows {}", service["status"]));
            }
        }
        if balancers.iter().any(|uid| !services.contains_key(uid)) {
            return Err("a balancer is left behind".into());
        }
        self.look_at_nodes()
    }

    fn look_at_nodes(&self) -> Result<(), String> {
        let nodes = self.trial.list("nodes");
        let names: BTreeSet<String> =
            nodes.iter().map(|node| node["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect();
        let alive: BTreeSet<String> = self.alive.iter().map(|name| (*name).to_owned()).collect();
        // A node without a provider ID may stay, because nobody knows which instance the node belonged to.
        let doubtful = |node: &&Value| node["spec"]["providerID"].is_null();
        let doubtful: BTreeSet<String> = nodes
            .iter()
            .filter(doubtful)
            .map(|node| node["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect();
        let left: Vec<&String> = names.difference(&alive).filter(|name| !doubtful.contains(*name)).collect();
        if !left.is_empty() {
            return Err(format!("nodes stay though their instances are gone: {left:?}"));
        }
        let routes: BTreeSet<String> = self.cloud.borrow().routes().map(|route| route.node.clone()).collect();
        if routes != names {
            return Err(format!("routes lead to {routes:?}, and there are {names:?}"));
        }
        let joined: BTreeSet<String> = nodes
            .iter()
            .filter(|node| {
                node["status"]["conditions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|of| of["type"] == "Ready" && of["status"] == "True")
            })
            .map(|node| node["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect();
        for kept in self.cloud.borrow().balancers() {
            let hosts: BTreeSet<String> = kept.hosts.iter().map(|host| host.node.name.clone()).collect();
            if !joined.is_subset(&hosts) || !hosts.is_subset(&names) {
                return Err(format!("a balancer sends to {hosts:?} of {names:?}"));
            }
        }
        Ok(())
    }

    fn run_for(&mut self, seconds: i64) {
        let end = self.trial.now().plus_seconds(seconds);
        for _ in 0..20_000 {
            if self.trial.step() {
                continue;
            }
            match self.trial.next_time().filter(|next| *next <= end) {
                Some(next) => self.trial.pass_millis(next.millis_since(self.trial.now()).max(1)),
                None => break,
            }
        }
    }
}
