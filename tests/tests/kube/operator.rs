//! A typical operator written with `kube`: a custom kind derived from a Rust type, a finalizer, owned objects, status,
//! watches of owned objects, and a Lease that elects one of two instances.

use super::{Cluster, PATIENCE, eventually};
use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::watcher;
use kube::{Client, CustomResource, CustomResourceExt, Error, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// A garden, and its plants.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "gardens.example.com",
    version = "v1",
    kind = "Garden",
    namespaced,
    status = "GardenStatus",
    shortname = "gd",
    printcolumn = r#"{"name":"Beds","type":"integer","jsonPath":".spec.beds"}"#,
    printcolumn = r#"{"name":"Planted","type":"string","jsonPath":".status.planted"}"#,
    scale(spec_replicas_path = ".spec.beds", status_replicas_path = ".status.beds")
)]
#[serde(rename_all = "camelCase")]
struct GardenSpec {
    #[schemars(range(min = 1, max = 20))]
    beds: i64,
    #[serde(default = "soil")]
    soil: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    plants: Vec<Plant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fence: Option<Fence>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Plant {
    name: String,
    count: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Fence {
    Wood { planks: u8 },
    Wire { height: f64 },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct GardenStatus {
    planted: String,
    beds: i64,
    observed_generation: Option<i64>,
}

fn soil() -> String {
    "loam".into()
}

const FINALIZER: &str = "gardens.example.com/weeding";

struct Operator {
    client: Client,
    weeded: tokio::sync::mpsc::UnboundedSender<String>,
}

async fn reconcile(garden: Arc<Garden>, operator: Arc<Operator>) -> Result<Action, Error> {
    let gardens: Api<Garden> = Api::namespaced(operator.client.clone(), "default");
    let done = finalizer(&gardens, FINALIZER, garden, |event| async {
        match event {
            Event::Apply(garden) => plant(&operator.client, &gardens, &garden).await,
            Event::Cleanup(garden) => {
                // Sending fails at the end of the test, when the receiver no longer exists.
                let _ = operator.weeded.send(garden.name_any());
                Ok(Action::await_change())
            }
        }
    });
    done.await.or_else(|_| Ok(Action::requeue(Duration::from_millis(50))))
}

/// Writes one ConfigMap for the whole garden, owned by the garden, and the garden's status.
async fn plant(client: &Client, gardens: &Api<Garden>, garden: &Garden) -> Result<Action, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let plants: Vec<&str> = garden.spec.plants.iter().map(|plant| plant.name.as_str()).collect();
    let wanted = ConfigMap {
        metadata: ObjectMeta {
            name: Some(garden.name_any()),
            owner_references: garden.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some([("plants".to_owned(), plants.join(" ")), ("soil".to_owned(), garden.spec.soil.clone())].into()),
        ..ConfigMap::default()
    };
    let params = PatchParams::apply("gardener").force();
    maps.patch(&garden.name_any(), &params, &Patch::Apply(&wanted)).await?;
    let status = GardenStatus {
        planted: plants.join(" "),
        beds: garden.spec.beds,
        observed_generation: garden.metadata.generation,
    };
    let status = json!({"apiVersion": Garden::api_version(&()), "kind": "Garden", "status": status});
    gardens.patch_status(&garden.name_any(), &params, &Patch::Apply(&status)).await?;
    Ok(Action::await_change())
}

pub async fn operator(cluster: Cluster) {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let definition = Garden::crd();
    let params = PatchParams::apply("installer");
    let made = definitions.patch("gardens.gardens.example.com", &params, &Patch::Apply(&definition)).await.unwrap();
    let conditions = made.status.and_then(|status| status.conditions).expect("conditions");
    assert!(conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True"));

    let client = cluster.client.clone();
    let (weeded, mut gone) = tokio::sync::mpsc::unbounded_channel();
    let context = Arc::new(Operator { client: client.clone(), weeded });
    let gardens: Api<Garden> = cluster.api();
    let maps: Api<ConfigMap> = cluster.api();
    let controller = Controller::new(gardens.clone(), watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .run(reconcile, |_, _: &Error, _| Action::requeue(Duration::from_millis(50)), context)
        .for_each(|_| async {});
    let working = tokio::spawn(controller);

    let spec = GardenSpec {
        beds: 3,
        soil: "sand".into(),
        plants: vec![Plant { name: "beans".into(), count: Some(9) }],
        fence: Some(Fence::Wire { height: 1.5 }),
    };
    let made = gardens.create(&PostParams::default(), &Garden::new("kitchen", spec.clone())).await.unwrap();
    assert_eq!((made.spec, made.status), (spec, None));
    let settled = |name: &'static str, planted: &'static str, generation: i64| {
        let (gardens, maps) = (gardens.clone(), maps.clone());
        eventually(PATIENCE, move || {
            let (gardens, maps) = (gardens.clone(), maps.clone());
            async move {
                let garden = gardens.get(name).await.map_err(|error| error.to_string())?;
                let status = garden.status.clone().ok_or("no status")?;
                let map = maps.get(name).await.map_err(|error| error.to_string())?;
                let owner = map.owner_references().first().cloned().ok_or("no owner")?;
                let told = (status.planted.as_str(), status.observed_generation) == (planted, Some(generation));
                let same = map.data.unwrap_or_default().get("plants").is_some_and(|plants| plants == planted);
                let owned = owner.kind == "Garden" && Some(owner.uid) == garden.uid();
                if told && same && owned { Ok(garden) } else { Err(format!("{status:?}")) }
            }
        })
    };
    let garden = settled("kitchen", "beans", 1).await;
    assert_eq!(garden.finalizers(), [FINALIZER]);

    // Owned objects are restored when another user changes them.
    let spoilt = Patch::Merge(json!({"data": {"plants": "weeds"}}));
    maps.patch("kitchen", &PatchParams::default(), &spoilt).await.unwrap();
    settled("kitchen", "beans", 1).await;
    let more = Patch::Merge(json!({"spec": {"plants": [{"name": "beans"}, {"name": "kale"}]}}));
    gardens.patch("kitchen", &PatchParams::default(), &more).await.unwrap();
    settled("kitchen", "beans kale", 2).await;
    let five = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let scaled = gardens.patch_scale("kitchen", &PatchParams::default(), &five).await.unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(5));
    settled("kitchen", "beans kale", 3).await;

    // The server enforces the validation rules of the type.
    let mut large = Garden::new("large", GardenSpec { beds: 21, ..garden.spec.clone() });
    let refused = gardens.create(&PostParams::default(), &large).await;
    super::refused(
        refused,
        422,
        "Invalid",
        "spec.beds: Invalid value: 21: spec.beds in body should be less than or equal to 20",
    );
    large.spec.beds = 20;
    let raw = json!({"apiVersion": "gardens.example.com/v1", "kind": "Garden", "metadata": {"name": "raw"}, "spec": {"beds": 1}});
    let defaulted = gardens.patch("raw", &PatchParams::apply("me"), &Patch::Apply(&raw)).await.unwrap();
    assert_eq!(defaulted.spec.soil, "loam");

    for name in ["kitchen", "raw"] {
        gardens.delete(name, &DeleteParams::default()).await.unwrap();
        eventually(PATIENCE, async || match gardens.get_opt(name).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        let weeded = tokio::time::timeout(PATIENCE, gone.recv()).await.expect("in time").expect("a name");
        assert_eq!(weeded, name);
    }
    working.abort();

    // Deleting the definition deletes the objects, and the kind.
    gardens.create(&PostParams::default(), &Garden::new("last", garden.spec.clone())).await.unwrap();
    definitions.delete("gardens.gardens.example.com", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, async || match gardens.list(&ListParams::default()).await {
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    assert!(gardens.list(&ListParams::default()).await.unwrap().items.is_empty());
}

/// Two instances compete for one Lease: the second gets it when the first releases it.
pub async fn leader_election(cluster: Cluster) {
    let leases: Api<Lease> = cluster.api();
    let now = || MicroTime(k8s_openapi::jiff::Timestamp::now());
    let lease = |holder: &str, transitions| Lease {
        metadata: ObjectMeta { name: Some("gardener".into()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(now()),
            renew_time: Some(now()),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }),
    };
    let (first, second) = (lease("a", 0), lease("b", 0));
    let params = PostParams::default();
    let (one, two) = tokio::join!(leases.create(&params, &first), leases.create(&params, &second));
    assert!(one.is_ok() != two.is_ok(), "one of the two leads");
    let held = leases.get("gardener").await.unwrap();
    // Both instances renew the same version of the Lease, so only one of the two writes succeeds.
    let renew = |holder: &str| {
        let mut renewed = lease(holder, 1);
        renewed.metadata.resource_version = held.resource_version();
        renewed
    };
    let (first, second) = (renew("a"), renew("b"));
    let (one, two) =
        tokio::join!(leases.replace("gardener", &params, &first), leases.replace("gardener", &params, &second));
    let loser = if one.is_ok() { two } else { one };
    super::refused(loser, 409, "Conflict", "the object has been modified");
    let mut free = leases.get("gardener").await.unwrap();
    free.spec.as_mut().unwrap().holder_identity = None;
    let freed = leases.replace("gardener", &params, &free).await.unwrap();
    let mut taken = lease("b", 2);
    taken.metadata.resource_version = freed.resource_version();
    let taken = leases.replace("gardener", &params, &taken).await.unwrap();
    assert_eq!(taken.spec.unwrap().holder_identity.as_deref(), Some("b"));
}
