// Package guestbook is an operator as kubebuilder scaffolds it: a controller, and webhooks that fill in defaults,
// validate and convert.
package guestbook

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "holdfast.dev/operators/guestbook/api/v1"
)

const finalizer = "web.example.com/finalizer"

// Reconciler keeps a Deployment for each guestbook.
type Reconciler struct{ client.Client }

func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var book v1.Guestbook
	if err := r.Get(ctx, request.NamespacedName, &book); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !book.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&book, finalizer) {
			return ctrl.Result{}, r.Update(ctx, &book)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&book, finalizer) {
		return ctrl.Result{}, r.Update(ctx, &book)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: book.Name, Namespace: book.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"guestbook": book.Name}
		deployment.Spec.Replicas = book.Spec.Replicas
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		if len(deployment.Spec.Template.Spec.Containers) == 0 {
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web"}}
		}
		web := &deployment.Spec.Template.Spec.Containers[0]
		web.Image = book.Spec.Image
		web.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: book.Spec.Memory}
		return controllerutil.SetControllerReference(&book, deployment, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	book.Status.ReadyReplicas = deployment.Status.ReadyReplicas
	condition := metav1.Condition{Type: "Available", Status: metav1.ConditionFalse, Reason: "Waiting",
		ObservedGeneration: book.Generation}
	if book.Status.ReadyReplicas >= *book.Spec.Replicas {
		condition.Status, condition.Reason = metav1.ConditionTrue, "Ready"
	}
	meta.SetStatusCondition(&book.Status.Conditions, condition)
	return ctrl.Result{}, r.Status().Update(ctx, &book)
}

func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&v1.Guestbook{}).Owns(&appsv1.Deployment{}).Complete(r)
}

// Defaulter sets the number of replicas if the client does not set it.
type Defaulter struct{}

func (Defaulter) Default(_ context.Context, book *v1.Guestbook) error {
	if book.Spec.Replicas == nil {
		one := int32(1)
		book.Spec.Replicas = &one
	}
	return nil
}

// Validator requires an image, refuses to change it, and refuses to delete protected guestbooks.
type Validator struct{}

func (Validator) ValidateCreate(_ context.Context, book *v1.Guestbook) (admission.Warnings, error) {
	if book.Spec.Image == "" {
		return nil, errors.New("spec.image is required")
	}
	return admission.Warnings{"guestbooks are public"}, nil
}

func (Validator) ValidateUpdate(_ context.Context, old, book *v1.Guestbook) (admission.Warnings, error) {
	if old.ResourceVersion == "" || old.Generation == 0 {
		return nil, fmt.Errorf("the old object has no version or generation: %+v", old.ObjectMeta)
	}
	if !old.Spec.Memory.Equal(book.Spec.Memory) {
		return nil, errors.New("spec.memory is immutable")
	}
	return nil, nil
}

func (Validator) ValidateDelete(_ context.Context, book *v1.Guestbook) (admission.Warnings, error) {
	if book.Annotations["protected"] == "true" {
		return nil, errors.New("the guestbook is protected")
	}
	return nil, nil
}

func SetupWebhooks(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &v1.Guestbook{}).WithDefaulter(Defaulter{}).WithValidator(Validator{}).Complete()
}
