// Registration of DotBasedInteract and its gradient: names, attributes, shapes.
#include "../dot_interact.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using tensorflow::Status;
using tensorflow::errors::InvalidArgument;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

struct Shapes {
  ShapeHandle input, bottom;
  DimensionHandle batch, features, dim, head;
};

// Checks what is known of the shapes of `input` and `bottom_mlp_output`, and of the upstream
// gradient's width, and fills in what one says of the other.
Status ReadShapes(InferenceContext* c, Shapes* shapes) {
  std::string layout;
  TF_RETURN_IF_ERROR(c->GetAttr("layout", &layout));
  ShapeHandle input, bottom = c->input(1);
  if (!c->WithRank(c->input(0), 3, &input).ok()) {
    return InvalidArgument("DotBasedInteract: input must be [batch, features, dim], got ",
                           c->DebugString(c->input(0)));
  }
  DimensionHandle batch = c->Dim(input, 0), dim = c->Dim(input, 2);
  DimensionHandle bottom_batch = c->UnknownDim(), bottom_dim = c->UnknownDim();
  if (c->RankKnown(bottom)) {
    const int rank = c->Rank(bottom);
    if (rank != 2 && !(rank == 3 && (!c->ValueKnown(c->Dim(bottom, 1)) ||
                                     c->Value(c->Dim(bottom, 1)) == 1))) {
      return InvalidArgument(
          "DotBasedInteract: bottom_mlp_output must be [batch, dim] or [batch, 1, dim], got ",
          c->DebugString(bottom));
    }
    bottom_batch = c->Dim(bottom, 0);
    bottom_dim = c->Dim(bottom, rank - 1);
  }
  if (!c->Merge(batch, bottom_batch, &batch).ok()) {
    return InvalidArgument("DotBasedInteract: input has the batch ", c->DebugString(input),
                           ", bottom_mlp_output another: ", c->DebugString(bottom));
  }
  DimensionHandle expected_dim = layout == "pairs" ? c->MakeDim(0) : dim;
  if (!c->Merge(expected_dim, bottom_dim, &bottom_dim).ok()) {
    return InvalidArgument("DotBasedInteract: bottom_mlp_output's last dimension must be ",
                           layout == "pairs" ? "0 with layout 'pairs'" : "that of input",
                           ", got input ", c->DebugString(input), " and bottom_mlp_output ",
                           c->DebugString(bottom));
  }
  if (layout != "pairs") dim = bottom_dim;
  DimensionHandle features = c->Dim(input, 1);
  if (layout == "separate") {
    TF_RETURN_IF_ERROR(c->Add(features, 1, &features));
  } else if (c->ValueKnown(features) && c->Value(features) == 0) {
    return InvalidArgument("DotBasedInteract: input needs at least one feature, got ",
                           c->DebugString(input));
  }
  shapes->batch = batch;
  shapes->dim = dim;
  shapes->head = bottom_dim;
  shapes->features = features;
  shapes->input = c->MakeShape({batch, c->Dim(input, 1), dim});
  if (!c->RankKnown(bottom)) {
    shapes->bottom = bottom;
  } else if (c->Rank(bottom) == 2) {
    shapes->bottom = c->MakeShape({batch, bottom_dim});
  } else {
    shapes->bottom = c->MakeShape({batch, c->MakeDim(1), bottom_dim});
  }
  return tensorflow::OkStatus();
}

DimensionHandle Width(InferenceContext* c, const Shapes& shapes) {
  if (!c->ValueKnown(shapes.head) || !c->ValueKnown(shapes.features)) return c->UnknownDim();
  return c->MakeDim(dot_interact_width(c->Value(shapes.head), c->Value(shapes.features)));
}

Status ForwardShape(InferenceContext* c) {
  Shapes shapes;
  TF_RETURN_IF_ERROR(ReadShapes(c, &shapes));
  c->set_output(0, c->MakeShape({shapes.batch, Width(c, shapes)}));
  return tensorflow::OkStatus();
}

Status BackwardShape(InferenceContext* c) {
  Shapes shapes;
  TF_RETURN_IF_ERROR(ReadShapes(c, &shapes));
  ShapeHandle expected = c->MakeShape({shapes.batch, Width(c, shapes)});
  ShapeHandle upstream;
  if (!c->Merge(c->input(2), expected, &upstream).ok()) {
    return InvalidArgument("DotBasedInteractGrad: upstream must be ", c->DebugString(expected),
                           ", got ", c->DebugString(c->input(2)));
  }
  c->set_output(0, shapes.input);
  c->set_output(1, shapes.bottom);
  return tensorflow::OkStatus();
}

}  // namespace

REGISTER_OP("DotBasedInteract")
    .Input("input: T")
    .Input("bottom_mlp_output: T")
    .Output("output: T")
    .Attr("T: {float, half, bfloat16}")
    .Attr("layout: {'joined', 'separate', 'pairs'} = 'joined'")
    .SetShapeFn(ForwardShape)
    .Doc(R"doc(
DLRM's dot interaction (Naumov et al., 2019): the bottom MLP's output, then the dot products of all
pairs of features, row by row of the strictly lower triangle, then zeros to a multiple of 8 columns.

input: [batch, features, dim]; its first row is the bottom MLP's output with layout 'joined'.
bottom_mlp_output: [batch, dim] or [batch, 1, dim]; [batch, 0] with layout 'pairs'.
output: [batch, width].
layout: 'separate': bottom_mlp_output is one more feature, before those of input; 'pairs': there is
  no bottom MLP, the output begins with the dot products.
)doc");

REGISTER_OP("DotBasedInteractGrad")
    .Input("input: T")
    .Input("bottom_mlp_output: T")
    .Input("upstream: T")
    .Output("input_gradient: T")
    .Output("bottom_mlp_gradient: T")
    .Attr("T: {float, half, bfloat16}")
    .Attr("layout: {'joined', 'separate', 'pairs'} = 'joined'")
    .SetShapeFn(BackwardShape)
    .Doc("Gradients of DotBasedInteract; upstream: [batch, width], that of its output.");
