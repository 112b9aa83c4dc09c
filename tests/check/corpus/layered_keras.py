import torch


class Layer(torch.nn.Module):
    built = False

    def forward(self, *args, **kwargs):
        if not self.built:
            self.build(args[0].shape)
            self.built = True
        return self.call(*args, **kwargs)


class SelfAttentionLayer(Layer):
    """Weights are made when the shape of the input is known."""

    def __init__(self, units, num_heads=2, **kwargs):
        super().__init__(**kwargs)
        self.units, self.num_heads = units, num_heads

    def build(self, input_shape):
        d = int(input_shape[-1])
        self.wq = torch.nn.Parameter(torch.randn(d, self.units, dtype=torch.get_default_dtype()) * 0.1)
        self.wk = torch.nn.Parameter(torch.randn(d, self.units, dtype=torch.get_default_dtype()) * 0.1)
        self.wv = torch.nn.Parameter(torch.randn(d, self.units, dtype=torch.get_default_dtype()) * 0.1)

    def call(self, inputs, mask=None):
        def split(t):
            return t.reshape(t.shape[0], t.shape[1], self.num_heads, -1).permute(0, 2, 1, 3)
        q, k, v = split(inputs @ self.wq), split(inputs @ self.wk), split(inputs @ self.wv)
        logits = torch.matmul(q, k.permute(0, 1, 3, 2)) / (self.units // self.num_heads) ** 0.5
        if mask is not None:
            logits = logits + (1.0 - mask[:, None, None, :].to(logits.dtype)) * -1e9
        out = torch.matmul(torch.softmax(logits, dim=-1), v)
        return out.permute(0, 2, 1, 3).reshape(inputs.shape[0], inputs.shape[1], self.units)
