import torch as t, torch.nn as n
L=n.Linear
class A(n.Module):
    def __init__(s,d,h):super().__init__();s.h=h;s.a=L(d,3*d);s.b=L(d,d)
    def forward(s,x):
        B,T,D=x.shape;q,k,v=[y.view(B,T,s.h,D//s.h).transpose(1,2)for y in s.a(x).split(D,2)]
        i=t.arange(T);w=(q@k.mT/(D//s.h)**.5).masked_fill(i[:,None]<=i[None],-1e9).softmax(-1)
        return s.b((w@v).transpose(1,2).reshape(B,T,D))
