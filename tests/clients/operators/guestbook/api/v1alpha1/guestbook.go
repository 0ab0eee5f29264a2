// Package v1alpha1 is the older version of guestbooks, in which the field replicas is called size.
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/controller-runtime/pkg/scheme"

	v1 "holdfast.dev/operators/guestbook/api/v1"
)

var (
	GroupVersion  = schema.GroupVersion{Group: "web.example.com", Version: "v1alpha1"}
	SchemeBuilder = &scheme.Builder{GroupVersion: GroupVersion}
	AddToScheme   = SchemeBuilder.AddToScheme
)

func init() { SchemeBuilder.Register(&Guestbook{}, &GuestbookList{}) }

type GuestbookSpec struct {
	Size   *int32            `json:"size,omitempty"`
	Image  string            `json:"image,omitempty"`
	Memory resource.Quantity `json:"memory,omitempty"`
}

type Guestbook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GuestbookSpec      `json:"spec,omitempty"`
	Status            v1.GuestbookStatus `json:"status,omitempty"`
}

func (in *Guestbook) ConvertTo(hub conversion.Hub) error {
	out := hub.(*v1.Guestbook)
	out.ObjectMeta = in.ObjectMeta
	out.Spec = v1.GuestbookSpec{Replicas: in.Spec.Size, Image: in.Spec.Image, Memory: in.Spec.Memory}
	out.Status = in.Status
	return nil
}

func (in *Guestbook) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*v1.Guestbook)
	in.ObjectMeta = from.ObjectMeta
	in.Spec = GuestbookSpec{Size: from.Spec.Replicas, Image: from.Spec.Image, Memory: from.Spec.Memory}
	in.Status = from.Status
	return nil
}

func (in *Guestbook) DeepCopyInto(out *Guestbook) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Spec.Size != nil {
		size := *in.Spec.Size
		out.Spec.Size = &size
	}
	out.Spec.Memory = in.Spec.Memory.DeepCopy()
	out.Status.Conditions = append([]metav1.Condition(nil), in.Status.Conditions...)
}

func (in *Guestbook) DeepCopyObject() runtime.Object {
	out := new(Guestbook)
	in.DeepCopyInto(out)
	return out
}

type GuestbookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Guestbook `json:"items"`
}

func (in *GuestbookList) DeepCopyObject() runtime.Object {
	out := &GuestbookList{TypeMeta: in.TypeMeta, Items: make([]Guestbook, len(in.Items))}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}
