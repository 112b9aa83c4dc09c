# attention for one sentence, no batch, like on the blackboard
import torch

def dot_attention(Q, K, V):
    # Q: (n, d)  K: (m, d)  V: (m, d)
    d = Q.shape[1]
    S = Q @ K.T / d ** 0.5
    A = torch.softmax(S, dim=1)
    return A @ V
