// Package memcached is the operator of the Operator SDK's tutorial. It uses unstructured objects.
package memcached

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var Kind = schema.GroupVersionKind{Group: "cache.example.com", Version: "v1alpha1", Kind: "Memcached"}

// New returns a Memcached without content.
func New() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(Kind)
	return object
}

// Reconciler keeps a Deployment for each Memcached, and writes the names of its pods into the status.
type Reconciler struct {
	client.Client
	Recorder events.EventRecorder
}

func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cache := New()
	if err := r.Get(ctx, request.NamespacedName, cache); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	size, _, _ := unstructured.NestedInt64(cache.Object, "spec", "size")
	replicas := int32(size)
	var found appsv1.Deployment
	err := r.Get(ctx, request.NamespacedName, &found)
	if apierrors.IsNotFound(err) {
		deployment := deploymentOf(cache, replicas)
		if err := ctrl.SetControllerReference(cache, deployment, r.Scheme()); err != nil {
			return ctrl.Result{}, err
		}
		r.Recorder.Eventf(cache, deployment, corev1.EventTypeNormal, "Created", "Create", "created %s", deployment.Name)
		return ctrl.Result{}, r.Create(ctx, deployment)
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if *found.Spec.Replicas != replicas {
		found.Spec.Replicas = &replicas
		return ctrl.Result{}, r.Update(ctx, &found)
	}
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.InNamespace(request.Namespace), client.MatchingLabels(labels(cache))); err != nil {
		return ctrl.Result{}, err
	}
	nodes := []interface{}{}
	for _, pod := range pods.Items {
		nodes = append(nodes, pod.Name)
	}
	patch := client.MergeFrom(cache.DeepCopy())
	if err := unstructured.SetNestedSlice(cache.Object, nodes, "status", "nodes"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Patch(ctx, cache, patch)
}

func labels(cache *unstructured.Unstructured) map[string]string {
	return map[string]string{"app": "memcached", "memcached_cr": cache.GetName()}
}

func deploymentOf(cache *unstructured.Unstructured, replicas int32) *appsv1.Deployment {
	port, _, _ := unstructured.NestedInt64(cache.Object, "spec", "containerPort")
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: cache.GetName(), Namespace: cache.GetNamespace()},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels(cache)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels(cache)},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "memcached", Image: "memcached:1.6-alpine",
					Ports: []corev1.ContainerPort{{ContainerPort: int32(port), Name: "memcached"}},
				}}},
			},
		},
	}
}

func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(New()).Owns(&appsv1.Deployment{}).Complete(r)
}
