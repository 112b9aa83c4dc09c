import numpy as np
import torch


def get_position_angle_vec(position, d_hid):
    return [position / np.power(10000, hid_j / d_hid) for hid_j in range(d_hid)]


def get_sinusoid_encoding_table(n_position, d_hid):
    """Sinusoid position encoding table"""
    sinusoid_table = np.array([get_position_angle_vec(pos_i, d_hid) for pos_i in range(n_position)])
    sinusoid_table[:, 0::2] = np.sin(sinusoid_table[:, 0::2])
    sinusoid_table[:, 1::2] = np.cos(sinusoid_table[:, 1::2])
    return torch.FloatTensor(sinusoid_table).unsqueeze(0)
