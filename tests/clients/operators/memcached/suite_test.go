package memcached

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Each suite has a control plane of its own, and all suites run at the same time.
func TestSuites(t *testing.T) {
	logf.SetLogger(zap.New())
	for number := range 3 {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			t.Parallel()
			suite(t)
		})
	}
}

func suite(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	env := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("config", "crd")},
		ErrorIfCRDPathMissing: true,
	}
	rest, err := env.Start()
	must(t, err)
	t.Cleanup(func() {
		cancel()
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	unnamed := true
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		// The controllers of all suites have the same name.
		Controller: config.Controller{SkipNameValidation: &unnamed},
	})
	must(t, err)
	reconciler := &Reconciler{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("memcached-controller")}
	must(t, reconciler.SetupWithManager(mgr))
	go func() { _ = mgr.Start(ctx) }()
	k8s, err := client.New(rest, client.Options{})
	must(t, err)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "memcached"}}
	must(t, k8s.Create(ctx, namespace))
	cache := New()
	cache.SetNamespace("memcached")
	cache.SetName("a")
	must(t, unstructured.SetNestedMap(cache.Object, map[string]interface{}{}, "spec"))
	if err := k8s.Create(ctx, cache.DeepCopy()); !apierrors.IsInvalid(err) {
		t.Fatalf("a Memcached without a size is not refused as invalid: %v", err)
	}
	must(t, unstructured.SetNestedField(cache.Object, int64(4), "spec", "size"))
	if err := k8s.Create(ctx, cache.DeepCopy()); !apierrors.IsInvalid(err) {
		t.Fatalf("a Memcached that is too large is not refused as invalid: %v", err)
	}
	must(t, unstructured.SetNestedField(cache.Object, int64(1), "spec", "size"))
	must(t, k8s.Create(ctx, cache))
	if port, _, _ := unstructured.NestedInt64(cache.Object, "spec", "containerPort"); port != 11211 {
		t.Errorf("the default port is %d", port)
	}

	key := client.ObjectKeyFromObject(cache)
	var deployment appsv1.Deployment
	eventually(t, "a Deployment", func() bool { return k8s.Get(ctx, key, &deployment) == nil })
	eventually(t, "an Event", func() bool {
		var list eventsv1.EventList
		return k8s.List(ctx, &list, client.InNamespace("memcached")) == nil && len(list.Items) > 0
	})

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a-0", Namespace: "memcached", Labels: labels(cache)},
		Spec:       deployment.Spec.Template.Spec,
	}
	must(t, k8s.Create(ctx, pod))
	eventually(t, "a Deployment of the new size", func() bool {
		if k8s.Get(ctx, key, cache) != nil {
			return false
		}
		_ = unstructured.SetNestedField(cache.Object, int64(2), "spec", "size")
		_ = k8s.Update(ctx, cache)
		return k8s.Get(ctx, key, &deployment) == nil && *deployment.Spec.Replicas == 2
	})
	eventually(t, "the names of pods in the status", func() bool {
		// The operator reconciles again when its Deployment changes.
		deployment.Status.ObservedGeneration++
		_ = k8s.Status().Update(ctx, &deployment)
		_ = k8s.Get(ctx, key, &deployment)
		_ = k8s.Get(ctx, key, cache)
		nodes, _, _ := unstructured.NestedStringSlice(cache.Object, "status", "nodes")
		return len(nodes) == 1 && nodes[0] == "a-0"
	})

	// The items of a list have their kind.
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(Kind)
	must(t, k8s.List(ctx, list))
	for _, item := range list.Items {
		if item.GroupVersionKind() != Kind {
			t.Errorf("an item of a list is a %v", item.GroupVersionKind())
		}
	}
	must(t, k8s.Delete(ctx, cache))
	eventually(t, "the deletion of the Memcached", func() bool { return apierrors.IsNotFound(k8s.Get(ctx, key, cache)) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}
