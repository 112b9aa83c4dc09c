"""Shape letters: B batch, L length, N heads, K head size, D model"""
from torch import einsum, nn, randn


class LetterAttention(nn.Module):
    def __init__(self, D, N):
        super().__init__()
        K = D // N
        self.w_DNK_q = nn.Parameter(randn(D, N, K) * D**-0.5)
        self.w_DNK_k = nn.Parameter(randn(D, N, K) * D**-0.5)
        self.w_DNK_v = nn.Parameter(randn(D, N, K) * D**-0.5)
        self.w_NKD_o = nn.Parameter(randn(N, K, D) * D**-0.5)

    def forward(self, x_BLD):
        q_BLNK = einsum("bld,dnk->blnk", x_BLD, self.w_DNK_q)
        k_BLNK = einsum("bld,dnk->blnk", x_BLD, self.w_DNK_k)
        v_BLNK = einsum("bld,dnk->blnk", x_BLD, self.w_DNK_v)
        s_BNLM = einsum("blnk,bmnk->bnlm", q_BLNK, k_BLNK) / q_BLNK.shape[-1] ** 0.5
        p_BNLM = s_BNLM.softmax(-1)
        o_BLNK = einsum("bnlm,bmnk->blnk", p_BNLM, k_BLNK)
        return einsum("blnk,nkd->bld", o_BLNK, self.w_NKD_o)
